"""Postgres, a Redis-compatible server, worker, beat and Flower for local use, as children of one process."""
