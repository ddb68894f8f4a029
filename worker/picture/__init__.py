"""A session's memory as one page for the browser: what it holds (``page``), and the file that it becomes (``private_file``)."""
