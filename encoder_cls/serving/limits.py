"""The limits of the server, as documented in docs/serving.md."""

MOST_BODY_BYTES = (
    1 << 20
)  # of a request: what proxies such as nginx accept, too; some seconds of work
MOST_TEXTS = 1000  # in a request: more is bulk work, for `encoder-cls predict`
MOST_EXPLAINED_TEXTS = 16  # in a request: each is classified once for each of its words
MOST_EXPLAINED_TOKENS = (
    1 << 15
)  # read to explain a text, about a second: all words of a text of 180
MOST_WAITING = 256  # requests; short ones are answered in half a second
MOST_HELD_BYTES = (
    16 << 20
)  # of all bodies that are read or wait: bounds the memory, and the work that waits
MOST_CONNECTIONS = 512  # half of the files that a process may have open by default
BATCH_CHARACTERS = (
    8192  # computed at once: 2,000 tokens of English, what the engine takes as one batch
)

HEADER_SECONDS = 10  # from the first byte of a request's head to its last
BODY_SECONDS = 20  # to its body's last byte: 50 KB a second
SEND_SECONDS = 20  # that a client may leave an answer unread
KEEP_ALIVE_SECONDS = 15  # between two requests of a connection
STOPPING_SECONDS = 1  # in which new requests get 503 before connections are closed
CLOSING_SECONDS = (
    30  # for clients to read the last answers; process managers kill after 30 seconds or later
)
