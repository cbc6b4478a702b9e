"""Look through data whose columns and form are not known yet, and draft a config for it."""
