"""REST of dags_app: DAGs, their live nodes and logs."""
