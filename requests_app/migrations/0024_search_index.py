"""Without ``pg_trgm`` a search reads an index of 11 MB instead of a table of more than 50 (100,000 requests)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0023_kept_account")]

    operations = [
        migrations.AddIndex(
            "request", models.Index(fields=["created_at", "id"], name="idx_requests_search_text", include=("search_text",))
        )
    ]
