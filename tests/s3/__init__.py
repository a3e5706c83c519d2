"""A real S3 server (SeaweedFS) and a proxy that fails on demand, for tests in any folder."""
