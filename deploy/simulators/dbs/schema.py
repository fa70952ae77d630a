"""Tables of the simulated DBS (the names of DBS's own schema, without the columns that are never read)."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS data_tiers (
  data_tier_id INTEGER PRIMARY KEY, data_tier_name TEXT NOT NULL UNIQUE, creation_date INTEGER, create_by TEXT);
CREATE TABLE IF NOT EXISTS physics_groups (physics_group_id INTEGER PRIMARY KEY, physics_group_name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS dataset_access_types (
  dataset_access_type_id INTEGER PRIMARY KEY, dataset_access_type TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS primary_ds_types (primary_ds_type_id INTEGER PRIMARY KEY, primary_ds_type TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS primary_datasets (
  primary_ds_id INTEGER PRIMARY KEY, primary_ds_name TEXT NOT NULL UNIQUE,
  primary_ds_type_id INTEGER NOT NULL REFERENCES primary_ds_types, creation_date INTEGER, create_by TEXT);
CREATE TABLE IF NOT EXISTS acquisition_eras (
  acquisition_era_id INTEGER PRIMARY KEY, acquisition_era_name TEXT NOT NULL UNIQUE,
  start_date INTEGER, end_date INTEGER, creation_date INTEGER, create_by TEXT, description TEXT);
CREATE TABLE IF NOT EXISTS processing_eras (
  processing_era_id INTEGER PRIMARY KEY, processing_version INTEGER NOT NULL UNIQUE,
  creation_date INTEGER, create_by TEXT, description TEXT);
CREATE TABLE IF NOT EXISTS output_configs (
  output_mod_config_id INTEGER PRIMARY KEY, app_name TEXT NOT NULL, release_version TEXT NOT NULL, pset_hash TEXT NOT NULL,
  output_module_label TEXT NOT NULL, global_tag TEXT NOT NULL, pset_name TEXT, creation_date INTEGER, create_by TEXT,
  UNIQUE (app_name, release_version, pset_hash, output_module_label, global_tag));
CREATE TABLE IF NOT EXISTS datasets (
  dataset_id INTEGER PRIMARY KEY, dataset TEXT NOT NULL UNIQUE, is_dataset_valid INTEGER NOT NULL DEFAULT 1,
  primary_ds_id INTEGER NOT NULL REFERENCES primary_datasets, processed_ds_name TEXT NOT NULL,
  data_tier_id INTEGER NOT NULL REFERENCES data_tiers,
  dataset_access_type_id INTEGER NOT NULL REFERENCES dataset_access_types,
  acquisition_era_id INTEGER NOT NULL REFERENCES acquisition_eras,
  processing_era_id INTEGER NOT NULL REFERENCES processing_eras,
  physics_group_id INTEGER NOT NULL REFERENCES physics_groups, xtcrosssection REAL, prep_id TEXT,
  creation_date INTEGER, create_by TEXT, last_modification_date INTEGER, last_modified_by TEXT);
CREATE TABLE IF NOT EXISTS dataset_configs (
  dataset_id INTEGER NOT NULL REFERENCES datasets, output_mod_config_id INTEGER NOT NULL REFERENCES output_configs,
  PRIMARY KEY (dataset_id, output_mod_config_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dataset_parents (
  this_dataset_id INTEGER NOT NULL REFERENCES datasets, parent_dataset_id INTEGER NOT NULL REFERENCES datasets,
  PRIMARY KEY (this_dataset_id, parent_dataset_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blocks (
  block_id INTEGER PRIMARY KEY, block_name TEXT NOT NULL UNIQUE, dataset_id INTEGER NOT NULL REFERENCES datasets,
  open_for_writing INTEGER NOT NULL DEFAULT 1, origin_site_name TEXT, block_size INTEGER, file_count INTEGER,
  creation_date INTEGER, create_by TEXT, last_modification_date INTEGER, last_modified_by TEXT);
CREATE INDEX IF NOT EXISTS blocks_of_dataset ON blocks (dataset_id);
CREATE TABLE IF NOT EXISTS block_parents (
  this_block_id INTEGER NOT NULL REFERENCES blocks, parent_block_id INTEGER NOT NULL REFERENCES blocks,
  PRIMARY KEY (this_block_id, parent_block_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file_data_types (file_type_id INTEGER PRIMARY KEY, file_type TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS files (
  file_id INTEGER PRIMARY KEY, logical_file_name TEXT NOT NULL UNIQUE, is_file_valid INTEGER NOT NULL DEFAULT 1,
  dataset_id INTEGER NOT NULL REFERENCES datasets, block_id INTEGER NOT NULL REFERENCES blocks,
  file_type_id INTEGER NOT NULL REFERENCES file_data_types,
  check_sum TEXT, event_count INTEGER, file_size INTEGER, adler32 TEXT, md5 TEXT, auto_cross_section REAL,
  creation_date INTEGER, create_by TEXT, last_modification_date INTEGER, last_modified_by TEXT);
CREATE INDEX IF NOT EXISTS files_of_dataset ON files (dataset_id);
CREATE INDEX IF NOT EXISTS files_of_block ON files (block_id);
CREATE TABLE IF NOT EXISTS file_lumis (
  file_id INTEGER NOT NULL REFERENCES files, run_num INTEGER NOT NULL, lumi_section_num INTEGER NOT NULL, event_count INTEGER,
  PRIMARY KEY (file_id, run_num, lumi_section_num)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file_parents (
  this_file_id INTEGER NOT NULL REFERENCES files, parent_file_id INTEGER NOT NULL REFERENCES files,
  PRIMARY KEY (this_file_id, parent_file_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS file_children ON file_parents (parent_file_id);
CREATE TABLE IF NOT EXISTS file_configs (
  file_id INTEGER NOT NULL REFERENCES files, output_mod_config_id INTEGER NOT NULL REFERENCES output_configs,
  PRIMARY KEY (file_id, output_mod_config_id)) WITHOUT ROWID;
INSERT OR IGNORE INTO dataset_access_types (dataset_access_type)
  VALUES ('VALID'), ('PRODUCTION'), ('INVALID'), ('DELETED'), ('DEPRECATED');
INSERT OR IGNORE INTO primary_ds_types (primary_ds_type) VALUES ('mc'), ('data'), ('cosmic'), ('test');
"""
