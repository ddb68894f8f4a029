"""Endurance: snapshots written at random while everything is killed, frozen and emptied; then a count of what is left."""
