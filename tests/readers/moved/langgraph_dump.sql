--
-- PostgreSQL database dump
--

SET statement_timeout = 0;
SET client_encoding = 'UTF8';

CREATE TABLE public.store (
    prefix text NOT NULL,
    key text NOT NULL,
    value jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP,
    updated_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP,
    expires_at timestamp with time zone,
    ttl_minutes integer
);

COPY public.store (prefix, key, value, created_at, updated_at, expires_at, ttl_minutes) FROM stdin;
users.ada	likes	{"text": "Ada says \\"red\\"\\nand more"}	2026-03-01 10:00:00.5+00	2026-03-02 10:00:00+00	\N	\N
notes	tab	{"text": "a\\tb"}	2026-03-03 10:00:00+00	2026-03-03 10:00:00+00	2030-01-01 00:00:00+00	60
\.

COPY public.store_migrations (v) FROM stdin;
0
3
\.

COPY public.store_vectors (prefix, key, field_name, embedding, created_at, updated_at) FROM stdin;
users.ada	likes	text	[0.1,0.2]	2026-03-01 10:00:00+00	2026-03-01 10:00:00+00
\.

--
-- PostgreSQL database dump complete
--
