"""What runs: the Celery app, for ``celery -A worker worker|beat|flower``, and the ``mneme`` command."""
