"""Bans of sites: the one table of sites that refers to workflows."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ("sites_app", "0013_owner"),
    ]

    dependencies = [
        ('requests_app', '0001_base'),
        ('sites_app', '0001_base'),
    ]

    operations = [
        migrations.CreateModel(
            name='SiteBan',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('site', models.ForeignKey(db_column='site_name', on_delete=django.db.models.deletion.PROTECT, related_name='bans', to='sites_app.site')),
                ('workflow', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='site_bans', to='requests_app.workflow')),
                ('reason', models.TextField()),
                ('failure_data', models.JSONField(blank=True, default=dict)),
                ('created_by', models.CharField(default='wms2', max_length=100)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('removed_at', models.DateTimeField(blank=True, null=True)),
                ('removed_by', models.CharField(blank=True, max_length=100)),
            ],
            options={
                'db_table': 'site_bans',
                'indexes': [models.Index(condition=models.Q(('removed_at__isnull', True)), fields=['site', 'expires_at'], name='idx_site_bans_active'), models.Index(condition=models.Q(('removed_at__isnull', True), ('workflow__isnull', False)), fields=['workflow'], name='idx_site_bans_workflow')],
                'constraints': [models.CheckConstraint(condition=models.Q(('removed_at__isnull', True), models.Q(('removed_by', ''), _negated=True), _connector='OR'), name='site_ban_removal_has_actor'), models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('created_at'))), name='site_ban_expires_later')],
            },
        ),
    ]
