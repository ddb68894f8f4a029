"""A rehearsal of an upgrade: from the code of an older revision to this one, while snapshots are written and folded."""
