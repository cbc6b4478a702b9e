"""A run: its folder, its log of metrics, and what is done with a finished one."""
