"""Run by Alembic: binds the migrations to the connection that ``models.migrate`` opened, and to the schema ``mneme``."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="alembic_version",
    version_table_schema="mneme",
)
# The caller owns the transaction, which also holds the lock against a second migrating process.
context.run_migrations()
