package config

import (
	"fmt"
	"io/fs"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// setValue sets a field of a section from a decoded TOML value, or says which rule the value breaks. It does not handle
// secrets and hosts, which need more than the value.
func setValue(field reflect.Value, s setting, raw any) (rule string) {
	switch p := field.Addr().Interface().(type) {
	case *string:
		return setString(p, raw)
	case *bool:
		v, ok := raw.(bool)
		if !ok {
			return "must be true or false"
		}
		*p = v
	case *int:
		return setInt(p, s, raw)
	case *int64:
		return setInt(p, s, raw)
	case *uint64:
		return setIdentifier(p, raw)
	case *float64:
		return setFloat(p, s, raw)
	case *Optional[int]:
		p.Set = true
		return setInt(&p.Value, s, raw)
	case *time.Duration:
		return setDuration(p, s, raw)
	case *Optional[time.Duration]:
		p.Set = true
		return setDuration(&p.Value, s, raw)
	case *fs.FileMode:
		return setMode(p, raw)
	case *[]string:
		return setStrings(p, raw)
	case choice:
		return setChoice(field, p, raw)
	default:
		panic(fmt.Sprintf("config: %s has a type no value is decoded into", s.goName))
	}
	return ""
}

func setString(p *string, raw any) string {
	v, ok := raw.(string)
	if !ok {
		return "must be a string"
	}
	if strings.ContainsRune(v, 0) {
		return "must not contain a zero byte"
	}
	*p = v
	return ""
}

func setInt[T int | int64](p *T, s setting, raw any) string {
	n, ok := raw.(int64)
	least, most := tagInt(s.min), tagInt(s.max)
	if _, quoted := raw.(string); quoted {
		return fmt.Sprintf("must be a number without quotes, from %d to %d", least, most)
	}
	if !ok || n < least || n > most {
		return fmt.Sprintf("must be a whole number from %d to %d", least, most)
	}
	*p = T(n)
	return ""
}

func tagInt(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("config: a tag's bound is not a number: " + text) // a test sets every field
	}
	return n
}

// setFloat takes whole numbers too: people write 1 for 1.0.
func setFloat(p *float64, s setting, raw any) string {
	n, ok := raw.(float64)
	if whole, is := raw.(int64); is {
		n, ok = float64(whole), true
	}
	if !ok || !(n >= tagFloat(s.min) && n <= tagFloat(s.max)) { // nan is neither
		return fmt.Sprintf("must be a number from %s to %s, such as 0.5", s.min, s.max)
	}
	*p = n
	return ""
}

func tagFloat(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("config: a tag's bound is not a number: " + text) // a test sets every field
	}
	return n
}

// setIdentifier takes a whole number above zero, also as a string: half of the identifiers are too large for TOML.
func setIdentifier(p *uint64, raw any) string {
	n, err := strconv.ParseUint(fmt.Sprint(raw), 10, 64)
	if err != nil || n == 0 {
		return `must be decimal digits, from 1 to 18446744073709551615, in quotes or without; leave it out for none`
	}
	*p = n
	return ""
}

func setDuration(p *time.Duration, s setting, raw any) string {
	if _, number := raw.(int64); number {
		return `must be a string with a unit, such as "5s": a number does not say whether it means seconds`
	}
	text, ok := raw.(string)
	if !ok {
		return `must be a string with a unit, such as "5s"`
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return `must be a duration such as "500ms", "5s", "10m" or "1h30m"`
	}
	if d < tagDuration(s.min) || d > tagDuration(s.max) {
		return fmt.Sprintf("must be a duration from %s to %s", s.min, s.max)
	}
	*p = d
	return ""
}

func tagDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic("config: a tag's bound is not a duration: " + text) // a test sets every field
	}
	return d
}

// setMode takes octal digits in a string only: of a TOML number nobody can tell any more which base it was written in.
func setMode(p *fs.FileMode, raw any) string {
	const rule = `must be a string of octal digits from "0000" to "0777"`
	text, ok := raw.(string)
	n, err := strconv.ParseUint(text, 8, 32)
	if !ok || err != nil || n > 0o777 {
		return rule
	}
	*p = fs.FileMode(n)
	return ""
}

func setStrings(p *[]string, raw any) string {
	const rule = `must be a list of strings, such as ["a", "b"]`
	list, ok := raw.([]any)
	if !ok {
		return rule
	}
	words := make([]string, 0, len(list))
	for _, element := range list {
		word, ok := element.(string)
		if !ok {
			return rule
		}
		for _, earlier := range words {
			if earlier == word {
				return fmt.Sprintf("must name %q only once", word)
			}
		}
		if word == "" || strings.ContainsRune(word, 0) {
			return "must not contain an empty string or one with a zero byte"
		}
		words = append(words, word)
	}
	*p = words
	return ""
}

func setChoice(field reflect.Value, c choice, raw any) string {
	text, _ := raw.(string)
	for _, word := range c.words() {
		if word == text {
			field.SetString(word)
			return ""
		}
	}
	return "must be one of " + quotedList(c.words())
}

func quotedList(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = strconv.Quote(word)
	}
	return strings.Join(quoted, ", ")
}

// writtenValue shows a TOML value as it might have been written, shortened.
func writtenValue(raw any) string {
	const most = 100
	text := fmt.Sprint(raw)
	switch v := raw.(type) {
	case string:
		text = strconv.Quote(v)
	case []string:
		text = "[" + quotedList(v) + "]"
	case []any:
		words := make([]string, len(v))
		for i, element := range v {
			words[i] = writtenValue(element)
		}
		text = "[" + strings.Join(words, ", ") + "]"
	case map[string]any, []map[string]any:
		text = "a table"
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
