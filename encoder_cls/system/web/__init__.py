"""What each HTTP server of this package needs: its socket, its guards, requests and responses."""
