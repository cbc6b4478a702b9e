"""What systems have after how many seconds: `anytime.py`."""
