"""How accurate encoder-cls is beside other methods: the parts of `accuracy.py`."""
