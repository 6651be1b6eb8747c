// Package metrics turns what the actors count into Prometheus metrics.
//
// Counting happens where the work happens: a plain integer or a [Histogram]
// that belongs to one event loop, without locks, atomics or allocations.
// Nothing is registered per pool or client. At a scrape the [Collector] asks
// its source once for copies of all of them, with a time limit, and makes
// constant metrics of the answer. So a scrape costs the loops one message each,
// and a loop that does not answer costs the scrape its data and nobody else
// anything.
package metrics
