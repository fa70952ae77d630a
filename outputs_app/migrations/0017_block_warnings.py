from django.db import migrations, models
from django.db.models.expressions import RawSQL


class Migration(migrations.Migration):
    """What DBS could not store as it was sent (ADR 0036)."""

    dependencies = [("outputs_app", "0016_words_for_people")]

    operations = [
        migrations.AddField(
            "processingblock",
            "warnings",
            models.JSONField(
                blank=True,
                db_default=RawSQL("'[]'::jsonb", ()),
                default=list,
                help_text="what DBS could not store as it was sent, though the block is whole there",
            ),
        ),
    ]
