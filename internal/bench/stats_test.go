package main

import (
	"math"
	"testing"
)

func TestSummarize(t *testing.T) {
	if iv := summarize(nil); iv.N != 0 {
		t.Errorf("nothing measured: %+v", iv)
	}
	if iv := summarize([]float64{3, 1, 2}); iv != (interval{Median: 2, Low: 1, High: 3, N: 3}) {
		t.Errorf("few rounds: %+v, want smallest and largest as the interval", iv)
	}
	// One outlier in nine rounds: the interval of the median does not reach out to it.
	values := []float64{1.00, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97, 1.00, 9}
	iv := summarize(values)
	if iv.Median != 1.00 || iv.Low < 0.97 || iv.High > 1.03 || iv.Low >= iv.High || iv.N != 9 {
		t.Errorf("with an outlier: %+v", iv)
	}
	if again := summarize(values); again != iv {
		t.Errorf("the same values gave %+v, then %+v", iv, again)
	}
	if values[8] != 9 || values[0] != 1 {
		t.Errorf("the values were changed: %v", values)
	}
}

func TestMedianAndQuantile(t *testing.T) {
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median of 1 to 4 = %v", m)
	}
	if m := median(nil); !math.IsNaN(m) {
		t.Errorf("median of nothing = %v", m)
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for q, want := range map[float64]int{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("quantile %v of 1 to 100 = %d, want %d", q, got, want)
		}
	}
	if got := quantile([]int(nil), 0.5); got != 0 {
		t.Errorf("quantile of nothing = %d", got)
	}
}
