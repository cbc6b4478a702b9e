"""Predictions in the processes of Ray: `encoder-cls predict --runner ray`."""
