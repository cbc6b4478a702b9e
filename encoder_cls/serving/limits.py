"""The limits of `serve`, as docs/serving.md has them; those of every server are in `system/web`."""

# Limits of a request.

# The maximum number of texts. More texts are a task for `encoder-cls predict`.
MAX_TEXTS = 1000
# The maximum number of texts with `explain`, which classifies a text once for each of its words.
MAX_EXPLAINED_TEXTS = 16
# The maximum number of tokens that are computed to explain one text, which takes about a second.
# They are enough to explain all words of a text of 180 words.
MAX_EXPLAINED_TOKENS = 1 << 15
# The maximum time from the end of a request's head to the end of its body. It allows clients that
# send 50 KB a second or more.
BODY_SECONDS = 20

# Limits of all requests together.

# The maximum number of waiting requests. Even the last of 256 short requests gets its response
# within half a second.
MAX_WAITING = 256
# The maximum size of all bodies that are being received or wait for predictions. It limits the
# memory, and the work ahead of a new request.
MAX_HELD_BYTES = 16 << 20
# The maximum number of characters in a batch. They are about 2,000 tokens of English, which the
# engine computes as one batch.
BATCH_CHARACTERS = 8192

# Limits of connections.

# The maximum number of connections that asyncio accepts in one turn of its loop. It is small,
# because a connection can be counted and refused only after that turn.
ACCEPTED_AT_ONCE = 4
# The number of connections that the system keeps in a queue until the server accepts them.
BACKLOG = 2048

# Limits of a stop.

# The time for which new requests get the status 503 before connections are closed.
STOPPING_SECONDS = 1
# The maximum time for clients to read the last responses. Process managers wait 30 seconds or
# longer before they kill a process.
CLOSING_SECONDS = 30
