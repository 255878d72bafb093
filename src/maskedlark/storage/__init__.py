"""What a party keeps: one protocol a kind of thing, any database by URL."""
