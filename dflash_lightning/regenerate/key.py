"""Where the key of a server is read: one name, for the help text and for messages."""

KEY_VARIABLE = "DFLASH_SERVER_KEY"
