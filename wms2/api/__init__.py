"""What every app's ``api/`` shares: problems, paging, permissions, parsing, schema. Knows no request, DAG, block or site."""
