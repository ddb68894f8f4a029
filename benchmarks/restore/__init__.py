"""A rehearsal of the worst day: the database's host is lost with its data, Redis too, and all there is is a backup."""
