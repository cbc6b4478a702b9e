"""The limits of every server of this package, as docs/serving.md has them."""

# The maximum size of a body. It is also the default of proxies such as nginx.
MAX_BODY_BYTES = 1 << 20
# The maximum number of connections. If the process may open fewer than twice as many files, the
# maximum is half the number of these files.
MAX_CONNECTIONS = 512
# The time for which a connection stays open without a request. It is longer than the 60 seconds of
# proxies and load balancers, so that the server does not close a connection that they still use.
KEEP_ALIVE_SECONDS = 75
