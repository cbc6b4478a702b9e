"""Label texts in the browser, with a model that learns meanwhile and chooses what to ask."""
