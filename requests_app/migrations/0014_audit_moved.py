from django.db import migrations


class Migration(migrations.Migration):
    """The audit belongs to wms2 now; its table stays as it is."""

    dependencies = [("requests_app", "0013_reserved_slots"), ("wms2", "0001_audit")]

    operations = [migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel(name="AuditEntry")])]
