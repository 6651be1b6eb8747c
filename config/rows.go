package config

import (
	"cmp"
	"reflect"
	"slices"
)

// Row is one line of SHOW CONFIG.
type Row struct {
	Key, Value, Default string
	Changeable          bool // by a reload
}

// Rows returns the settings of [fencepost] in alphabetical order. Durations carry their unit, lists are separated by
// commas, booleans are true and false.
func (c *Config) Rows() []Row {
	def := Default()
	values, defaults := reflect.ValueOf(&c.Fencepost).Elem(), reflect.ValueOf(&def).Elem()
	rows := make([]Row, len(fencepostSettings))
	for i, s := range fencepostSettings {
		rows[i] = Row{
			Key:        s.key,
			Value:      formatValue(values.Field(s.index).Interface()),
			Default:    formatValue(defaults.Field(s.index).Interface()),
			Changeable: s.reloadable,
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	return rows
}
