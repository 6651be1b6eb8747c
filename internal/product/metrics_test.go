package product

import "testing"

func TestMetrics(t *testing.T) {
	m, err := ParseMetrics("# HELP x y\nfencepost_pool_servers{database=\"tx\",user=\"alice\",state=\"idle\"} 2\n" +
		"fencepost_pool_servers{database=\"tx\",user=\"bob\",state=\"idle\"} 3\nfencepost_pool_servers_other 9\ngo_goroutines 1.2e+01\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Sum("fencepost_pool_servers", `database="tx"`); got != 5 {
		t.Errorf("sum %v", got)
	}
	if got := m.Sum("fencepost_pool_servers", `database="tx"`, `user="bob"`); got != 3 {
		t.Errorf("sum of bob %v", got)
	}
	if got := m.Sum("go_goroutines"); got != 12 || m.Has("nothing") || !m.Has("go_goroutines") {
		t.Errorf("goroutines %v", got)
	}
	if _, err := ParseMetrics("x y z\n"); err == nil {
		t.Error("accepted what is no metric")
	}
}
