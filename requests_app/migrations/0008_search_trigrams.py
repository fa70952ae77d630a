"""An index for searches in the middle of names, where PostgreSQL has the extension ``pg_trgm``.

It is part of PostgreSQL's contrib package and trusted: the database's owner may create it. Without it (a server of the bare
binaries, a role that may create nothing) a search reads the whole column; run the two statements below once it is there.
"""

from django.db import migrations

INDEX = "idx_requests_search"
CREATE = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    f"CREATE INDEX IF NOT EXISTS {INDEX} ON requests USING gin (search_text gin_trgm_ops)",
)
MAY_CREATE = """
    SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm')
        OR EXISTS (SELECT FROM pg_available_extension_versions WHERE name = 'pg_trgm' AND trusted)
        AND has_database_privilege(current_database(), 'CREATE')
"""


def create(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(MAY_CREATE)
        (may,) = cursor.fetchone()
    if may:
        for statement in CREATE:
            schema_editor.execute(statement)


def drop(apps, schema_editor):
    schema_editor.execute(f"DROP INDEX IF EXISTS {INDEX}")


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0007_search_text")]
    operations = [migrations.RunPython(create, drop)]
