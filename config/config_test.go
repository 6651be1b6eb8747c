package config

import "testing"

const minimal = `
[shards.main]
hosts = ["127.0.0.1:5432"]
[databases."*"]
shard = "main"
[users.app]
password = "s3cret"
`

func TestMinimal(t *testing.T) {
	c, err := Parse("t.toml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	db, ok := c.Database("app")
	if !ok || db.DBName != "app" || db.Shard != "main" {
		t.Fatalf("database app: %+v, %v", db, ok)
	}
	if s := c.PoolSettings(db, "app"); s.Mode != PoolTransaction || s.Size != 20 {
		t.Fatalf("pool settings: %+v", s)
	}
}
