// Objects as JSON has them, and how to reach into them.
package main

import (
	"encoding/json"
	"strconv"
)

// object is a Kubernetes object or a part of one.
type object map[string]any

// at follows names, and gives nil if one is missing.
func (o object) at(path ...string) any {
	var value any = o
	for _, name := range path {
		switch inner := value.(type) {
		case object:
			value = inner[name]
		case map[string]any:
			value = inner[name]
		default:
			return nil
		}
	}
	return value
}

// text is the string at a path, or "".
func (o object) text(path ...string) string {
	text, _ := o.at(path...).(string)
	return text
}

// number is the integer at a path, or -1.
func (o object) number(path ...string) int64 {
	if number, ok := o.at(path...).(float64); ok {
		return int64(number)
	}
	return -1
}

// inner is the object at a path, or nil.
func (o object) inner(path ...string) object {
	switch value := o.at(path...).(type) {
	case map[string]any:
		return value
	case object:
		return value
	}
	return nil
}

// set puts a value at a path, making the objects on the way.
func (o object) set(value any, path ...string) object {
	if len(path) > 1 {
		next := o.inner(path[0])
		if next == nil {
			next = object{}
			o[path[0]] = next
		}
		next.set(value, path[1:]...)
		return o
	}
	o[path[0]] = value
	return o
}

// name and revision are what metadata says; a revision that is no number is -1.
func (o object) name() string { return o.text("metadata", "name") }

func (o object) revision() int64 {
	revision, err := strconv.ParseInt(o.text("metadata", "resourceVersion"), 10, 64)
	if err != nil {
		return -1
	}
	return revision
}

// items are those of a list.
func (o object) items() []object {
	list, _ := o["items"].([]any)
	items := make([]object, 0, len(list))
	for _, item := range list {
		if inner, ok := item.(map[string]any); ok {
			items = append(items, inner)
		}
	}
	return items
}

// copied is the object with nothing shared.
func (o object) copied() object {
	var copied object
	text := must(json.Marshal(o))
	if err := json.Unmarshal(text, &copied); err != nil {
		panic(err)
	}
	return copied
}

// configMap is the plainest of objects.
func configMap(name string, data object) object {
	return object{"metadata": object{"name": name}, "data": data}
}

// drop removes fields.
func (o object) drop(names ...string) {
	for _, name := range names {
		delete(o, name)
	}
}
