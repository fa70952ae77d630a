import time

import pytest
from django.db import connection
from django.utils import timezone

from dags_app.models import *
from requests_app.models import *
from sites_app.models import *
from tests.support.rows import *
from tests.support.statements import statements_of
from tests.support.web_clients import *
from wms2.metrics.row_counts import counts_fold


def multiply(model, n, over, where="true"):
    cols = [f.column for f in model._meta.concrete_fields if not f.generated and f.column not in over]
    q = [f'"{c}"' for c in cols]
    with connection.cursor() as c:
        c.execute(
            f"INSERT INTO {model._meta.db_table} ({', '.join(q + list(over))}) SELECT {', '.join('t.' + x for x in q)}, {', '.join(over.values())} FROM {model._meta.db_table} t, generate_series(1, {n}) g WHERE {where}"
        )


@pytest.mark.django_db
def test_bench(operator):
    now = timezone.now()
    for i in range(60):
        Site.objects.create(name=f"T2_XX_S{i}")
    req = request_row(RequestStatus.COMPLETED, campaign="c0")
    w = workflow_row(req, requested_events=1000)
    d = dag_row(w, DAGStatus.COMPLETED)
    t = time.monotonic()
    multiply(
        Request,
        100000,
        {
            "id": "gen_random_uuid()",
            "request_name": "'r' || g",
            "campaign": "'c' || (sqrt(random()) * 300)::int",
            "status": "(ARRAY['completed','archived','active','queued','aborted'])[1 + g % 5]",
            "family": "gen_random_uuid()",
        },
    )
    print("requests", time.monotonic() - t)
    t = time.monotonic()
    Request.objects.filter(request_name__in=[f"r{i}" for i in range(0, 100000, 53)]).update(
        status="held", hold_code="operator", hold_reason="x"
    )
    print("held", time.monotonic() - t)
    t = time.monotonic()
    multiply(Workflow, 100000, {"id": "gen_random_uuid()", "request_name": "'r' || g", "number": "1000000 + g"})
    print("workflows", time.monotonic() - t)
    t = time.monotonic()
    with connection.cursor() as c:
        c.execute(
            "INSERT INTO rounds (workflow_id, index, sizing, created_at, closed_at) SELECT id, 0, '{}', now(), now() FROM workflows WHERE request_name LIKE 'r%%'"
        )
        u = unit_row(d, state="planned", manifest_sha256="a", fence=1, events=100, site="T2_XX_S1", done_at=now)
        cols = [
            f.column
            for f in WorkUnit._meta.concrete_fields
            if f.column not in ("id", "workflow_id", "round_id", "state", "done_at", "site")
        ]
        c.execute(
            f"""INSERT INTO work_units ({", ".join('"%s"' % x for x in cols)}, workflow_id, round_id, state, done_at, site) SELECT {", ".join('t."%s"' % x for x in cols)}, r.workflow_id, r.id, 'done', now() - random() * interval '30 days', 'T2_XX_S' || (random()*59)::int FROM work_units t, rounds r WHERE r.closed_at IS NOT NULL"""
        )
        print("units", time.monotonic() - t)
        t = time.monotonic()
        c.execute("""INSERT INTO failure_groups (workflow_id, category, code, site, step, rule, attempts, given_up, actions, rounds, reason, first_at, last_at)
          SELECT w.id, 'data', (ARRAY[8021,8028,50660,92,85,134,139,60311,8001,1])[1 + (random()*9)::int], 'T2_XX_S' || (random()*59)::int, '', 'r', 5, 1, '{}', '{}', '', now(), now() - random() * interval '30 days' FROM workflows w""")
        print("failures", time.monotonic() - t)
        t = time.monotonic()
        c.execute(
            "INSERT INTO failure_samples (group_id, dag_id, unit, node, attempt, job_id, final, at, message, bad_files, log_tail) SELECT id, %s, 'mg_000001', 'proc_000000', 0, '7.0', true, last_at, 'm' || code, '[]', 'tail' FROM failure_groups",
            [d.pk],
        )
        print("samples", time.monotonic() - t)
        t = time.monotonic()
        counts_fold("campaign_counts", "campaign")
        print("fold", time.monotonic() - t)
        c.execute("ANALYZE")
        c.execute("SELECT count(*) FROM campaign_counts")
        print("rows", c.fetchone())
        t = time.monotonic()
        c.execute("UPDATE work_units SET events = events + 1 WHERE id IN (SELECT id FROM work_units LIMIT 100)")
        print("100 units with triggers", time.monotonic() - t)
        t = time.monotonic()
        c.execute("ALTER TABLE work_units DISABLE TRIGGER campaign_units_update")
        t = time.monotonic()
        c.execute("UPDATE work_units SET events = events + 1 WHERE id IN (SELECT id FROM work_units LIMIT 100)")
        print("100 units without", time.monotonic() - t)

    def took(path, n=5):
        best = 9
        for _ in range(n):
            t = time.process_time()
            w = time.monotonic()
            r = operator.get(path)
            best = min(best, time.monotonic() - w)
            assert r.status_code in (200, 400), r.content[:300]
        return best * 1000

    base = took("/livez", 20)
    print("livez", base)
    for path in (
        "/campaigns/",
        "/campaigns/c150/",
        "/campaigns/c299/",
        "/api/v1/campaigns",
        "/failures/",
        "/failures/?range=30d",
        "/failures/?code=8021&site=T2_XX_S7",
        "/failures/?code=8021&range=30d",
        "/failures/?campaign=c299&range=7d",
        "/sites/",
        "/sites/T2_XX_S7/",
        "/api/v1/requests?failed_code=8021&failed_site=T2_XX_S7",
        "/api/v1/failures",
    ):
        ms = took(path)
        print(f"{path:60} {ms:7.1f} ms {ms / base:6.1f} x", len(statements_of(operator, path)))
    from django.test.utils import CaptureQueriesContext

    for path in ("/failures/", "/campaigns/", "/campaigns/c299/", "/sites/"):
        with CaptureQueriesContext(connection) as f:
            operator.get(path)
        for q in sorted(f.captured_queries, key=lambda q: -float(q["time"]))[:3]:
            print(path, q["time"], q["sql"][:200].replace("\n", " "))
