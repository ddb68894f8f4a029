"""The actions of the ``mneme`` command, one module each. Heavy imports stand inside the functions that need them."""
