package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// setting is one key of a section, from its struct field.
type setting struct {
	key, unit, def, min, max, example, group string
	hasDefault, reloadable                   bool
	goName                                   string
	index                                    int
}

// settingsOf lists the settings of a section's struct in the order of its fields.
func settingsOf(section reflect.Type) []setting {
	var list []setting
	for i := range section.NumField() {
		f := section.Field(i)
		key, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		def, hasDefault := f.Tag.Lookup("default")
		list = append(list, setting{
			key: key, unit: f.Tag.Get("unit"), def: def, min: f.Tag.Get("min"), max: f.Tag.Get("max"),
			example: f.Tag.Get("example"), group: f.Tag.Get("group"), hasDefault: hasDefault, reloadable: f.Tag.Get("reload") == "yes",
			goName: f.Name, index: i,
		})
	}
	return list
}

var (
	fencepostSettings = settingsOf(reflect.TypeFor[Fencepost]())
	shardSettings     = settingsOf(reflect.TypeFor[Shard]())
	databaseSettings  = settingsOf(reflect.TypeFor[Database]())
	userSettings      = settingsOf(reflect.TypeFor[User]())
	fleetSettings     = settingsOf(reflect.TypeFor[Fleet]())
	peerSettings      = settingsOf(reflect.TypeFor[Peer]())
)

// Default returns the section [fencepost] of an empty file.
func Default() Fencepost {
	var f Fencepost
	setDefaults(&f, fencepostSettings)
	if !hasEpoll {
		f.EventLoop = LoopPortable
	}
	return f
}

// setDefaults sets the fields with a default in the struct that dst points to.
func setDefaults(dst any, settings []setting) {
	section := reflect.ValueOf(dst).Elem()
	for _, s := range settings {
		if !s.hasDefault {
			continue
		}
		if rule := setText(section.Field(s.index), s, s.def); rule != "" {
			panic("config: default of " + s.key + " " + rule) // a tag of this package is wrong; a test loads them all
		}
	}
}

// setText sets a field from the text of a tag, by the same rules as from the file.
func setText(field reflect.Value, s setting, text string) (rule string) {
	var raw any = text
	switch p := field.Addr().Interface().(type) {
	case *Secret:
		*p = NewSecret(text)
		return ""
	case *[]Host:
		*p = nil
		for addr := range strings.SplitSeq(text, ",") {
			*p = append(*p, Host{Addr: addr, Role: RoleAuto})
		}
		return ""
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "is not a number"
		}
		raw = n
	case *int, *int64, *Optional[int]:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return "is not a number"
		}
		raw = n
	case *bool:
		raw = text == "true"
	case *[]string:
		list := []any{}
		for word := range strings.SplitSeq(text, ",") {
			if word != "" {
				list = append(list, word)
			}
		}
		raw = list
	}
	return setValue(field, s, raw)
}

// formatDuration writes d as people do: 2m, 1h30m, 0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// formatValue writes a field's value for a person: lists separated by commas, secrets hidden, what is not set empty.
func formatValue(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return formatDuration(v)
	case Optional[time.Duration]:
		if !v.Set {
			return ""
		}
		return formatDuration(v.Value)
	case Optional[int]:
		if !v.Set {
			return ""
		}
		return strconv.Itoa(v.Value)
	case []string:
		return strings.Join(v, ",")
	case []Host:
		return hostList(v)
	case Secret:
		return v.String()
	}
	return formatPlain(reflect.ValueOf(value))
}

func formatPlain(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Uint64: // an identifier, of which zero is none
		if v.Uint() == 0 {
			return ""
		}
		return strconv.FormatUint(v.Uint(), 10)
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case reflect.Uint32: // fs.FileMode
		return "0" + strconv.FormatUint(v.Uint(), 8)
	default:
		return v.String()
	}
}

// hostList writes hosts for a person; it also names the shard of a list written in a database.
func hostList(hosts []Host) string {
	words := make([]string, len(hosts))
	for i, h := range hosts {
		words[i] = h.Addr
		if h.Role != "" && h.Role != RoleAuto {
			words[i] += " " + string(h.Role)
		}
	}
	return strings.Join(words, ",")
}
