"""The linear model: n-gram features, and predictions from them, which need NumPy alone."""
