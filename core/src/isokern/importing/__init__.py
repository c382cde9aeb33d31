"""What importers of foreign graphs share: graphs under construction, in which what is known is computed at once."""
