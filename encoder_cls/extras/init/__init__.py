"""Look through data of unknown form, and write a config for it: `encoder-cls init`."""
