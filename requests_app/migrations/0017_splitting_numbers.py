"""``splitting_params`` of what is there already tells the algorithm's numbers too, as the specification has them."""

from django.db import migrations

PARAMETERS = {
    "FileBased": ("files_per_job",),
    "EventBased": ("events_per_job", "events_per_lumi"),
    "LumiBased": ("lumis_per_job", "halt_job_on_file_boundaries"),
    "EventAwareLumiBased": ("events_per_job", "events_per_lumi", "halt_job_on_file_boundaries", "job_time_limit_seconds"),
}


def tell_numbers(apps, schema_editor):
    workflows = apps.get_model("requests_app", "Workflow").objects.only("spec", "request_id")
    for workflow in workflows.iterator(chunk_size=200):
        splitting = workflow.spec.get("splitting") or {}
        algorithm, numbers = splitting.get("algorithm"), workflow.spec.get("generation") or splitting
        if algorithm not in PARAMETERS:
            continue
        shown = {"algorithm": algorithm} | {name: numbers[name] for name in PARAMETERS[algorithm] if numbers.get(name)}
        apps.get_model("requests_app", "Workflow").objects.filter(pk=workflow.pk).update(splitting_params=shown)
        apps.get_model("requests_app", "Request").objects.filter(request_name=workflow.request_id).update(splitting_params=shown)


class Migration(migrations.Migration):
    atomic = False  # each row by itself: none is kept locked, and it can be done again
    dependencies = [("requests_app", "0016_prepared")]

    operations = [migrations.RunPython(tell_numbers, migrations.RunPython.noop)]
