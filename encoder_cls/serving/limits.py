"""The limits of the server, as documented in docs/serving.md."""

# Of a request.

# Proxies such as nginx accept a body of 1 MiB, too; its texts are some seconds of work.
MAX_BODY_BYTES = 1 << 20
# More is bulk work, for `encoder-cls predict`.
MAX_TEXTS = 1000
# With `explain`, a text is classified once for each of its words.
MAX_EXPLAINED_TEXTS = 16
# Tokens read to explain a text, about a second: all words of a text of 180.
MAX_EXPLAINED_TOKENS = 1 << 15
# From the end of a request's head to the end of its body: 50 KB a second.
BODY_SECONDS = 20

# Of all requests together.

# Short requests get their responses within half a second, even if so many wait.
MAX_WAITING = 256
# Of the bodies that are read or wait: bounds the memory, and the work that waits.
MAX_HELD_BYTES = 16 << 20
# Characters computed at once: 2,000 tokens of English, what the engine takes as one batch.
BATCH_CHARACTERS = 8192

# Of connections.

# A process that may open fewer than twice as many files keeps half as many connections as files.
MAX_CONNECTIONS = 512
# Accepted before the first of them can be refused: asyncio counts a connection some steps later.
ACCEPTED_AT_ONCE = 4
# Connections that the system keeps until they are accepted.
BACKLOG = 2048
# Without a request: proxies and load balancers keep theirs for 60 seconds by default.
KEEP_ALIVE_SECONDS = 75

# Of a stop.

# New requests get 503, before connections are closed.
STOPPING_SECONDS = 1
# Clients read the last responses; process managers kill after 30 seconds or later.
CLOSING_SECONDS = 30
