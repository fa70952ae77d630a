from django.db import migrations, models

_VIEW = """
CREATE VIEW dead_letters AS
SELECT 'effect-' || e.id AS id, 'effect' AS kind, e.id::text AS row, r.request_name, e.key AS what, e.attempts,
  coalesce(e.first_failed_at, e.created_at) AS since, e.last_error
FROM effects e JOIN requests r ON r.id = e.request_id AND r.epoch = e.epoch WHERE e.state IN ('refused', 'dead')
UNION ALL
SELECT 'harvest-' || h.id, 'harvest', h.id::text, h.request_name, h.dataset || ' run ' || h.run, h.attempts, h.next_try_at, h.problem
FROM harvests h WHERE h.state = 'failed'
UNION ALL
SELECT 'leftover-' || l.id, 'leftover', l.id::text, w.request_name, u.name || ' at ' || l.site, l.tries, l.next_try_at, l.problem
FROM leftovers l JOIN work_units u ON u.id = l.unit_id JOIN workflows w ON w.id = u.workflow_id
WHERE l.settled_at IS NULL AND l.tries >= 3
UNION ALL
SELECT 'storage-' || s.id, 'storage', s.id::text, w.request_name, b.dbs_block_name || ' at ' || s.rse, s.tries, v.asked_at, s.problem
FROM storage_checks s JOIN block_validations v ON v.block_id = s.validation_id JOIN processing_blocks b ON b.id = v.block_id
JOIN workflows w ON w.id = b.workflow_id WHERE s.done_at IS NULL AND s.tries >= 3 AND s.generation = v.generation
UNION ALL
SELECT 'comparison-' || c.id, 'comparison', c.id::text, w.request_name, coalesce(d.name, 'census of rules'), 0,
  coalesce(c.ended_at, c.begun_at, c.asked_at, c.due_at), c.last_error
FROM comparisons c LEFT JOIN output_datasets d ON d.id = c.dataset_id LEFT JOIN workflows w ON w.id = d.workflow_id
WHERE c.last_error <> '' AND coalesce(c.ended_at, c.begun_at, c.asked_at, c.due_at) < now() - interval '6 hours'
UNION ALL
SELECT 'pack-' || g.id, 'pack', g.id::text, w.request_name, g.submit_dir, 0, coalesce(g.pack_tried_at, g.created_at), g.pack_problem
FROM dags g JOIN workflows w ON w.id = g.workflow_id
WHERE g.packed_at IS NULL AND g.pack_problem <> '' AND g.directory_id = g.id
UNION ALL
SELECT 'reqmgr2-' || q.id, 'reqmgr2', q.id::text, r.request_name, coalesce(q.name, 'a clone'), 0,
  coalesce(q.compared_at, q.claimed_at, now()), q.problem
FROM reqmgr2_requests q LEFT JOIN requests r ON r.id = q.request_id
WHERE q.problem <> '' AND q.problem NOT LIKE 'not yet:%' AND NOT q.over
UNION ALL
SELECT 'task-' || t.name, 'task', t.name, NULL, t.name, t.failures, t.since, t.last_error
FROM failing_tasks t WHERE t.failures >= 3 AND t.discarded = ''
"""


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0037_moving"),
        ("dags_app", "0018_harvesting"),
        ("outputs_app", "0014_block_evidence"),
        ("wms2", "0005_workers"),
    ]

    operations = [
        migrations.RunSQL(_VIEW, "DROP VIEW dead_letters"),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                ("id", models.CharField(max_length=300, primary_key=True, serialize=False)),
            ],
            options={"db_table": "dead_letters", "ordering": ("since",), "managed": False},
        ),
    ]
