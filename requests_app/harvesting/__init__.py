"""DQM harvesting of completed requests (ADR 0020): what documents ask for, rows, jobs, what is shown, operations, REST.

Elsewhere: the program at the site (``dags_app.payload.run.harvest``), what a DAG's specification keeps of it
(``dags_app.planning.specs.HarvestSpec``), the column of the admin (``requests_app.admin.rows``), the page's part.
"""
