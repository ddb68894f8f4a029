-- Run once, by the image of Postgres, when its volume is filled: a database, owned by a role that may do nothing elsewhere.
\getenv password SERVICE_PASSWORD
create role mneme_service login password :'password';
create database mneme owner mneme_service;
