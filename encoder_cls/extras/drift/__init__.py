"""How the texts of today differ from those that a model was measured on: `encoder-cls drift`."""
