from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dags_app", "0020_began_at"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="dag",
            index=models.Index(
                fields=["id"],
                name="idx_dags_not_packable",
                condition=models.Q(("packed_at__isnull", True), models.Q(("pack_problem", ""), _negated=True)),
            ),
        ),
    ]
