package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/socknotify/socknotify/gateway"
)

// topicsName is the name in a configuration file that is no flag's.
const topicsName = "topics"

// A topicOptions has the options of the topics with a first word, in a configuration file.
type topicOptions struct {
	History  *bool    `yaml:"history"`
	Presence *bool    `yaml:"presence"`
	Read     []string `yaml:"read"`
	Write    []string `yaml:"write"`
}

// readConfig sets the flags that a file has, but for those of the command line: given. The names in the
// file are those of flags. topics has options by the first word of a topic.
func (o *options) readConfig(f *flag.FlagSet, file string, given map[string]bool) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var top yaml.Node
	err = yaml.NewDecoder(bytes.NewReader(b)).Decode(&top)
	switch {
	case errors.Is(err, io.EOF): // it is empty
		return nil
	case err != nil:
		return fmt.Errorf("--config %s: %w", file, err)
	case len(top.Content) != 1 || top.Content[0].Kind != yaml.MappingNode:
		return fmt.Errorf("--config %s: want names of flags with values", file)
	}
	seen := make(map[string]bool)
	all := top.Content[0].Content
	for i := 0; i+1 < len(all); i += 2 {
		name, value := all[i], all[i+1]
		at := func(err error) error {
			return fmt.Errorf("--config %s: line %d: %s: %w", file, name.Line, name.Value, err)
		}
		if seen[name.Value] {
			return at(errors.New("it is there twice"))
		}
		seen[name.Value] = true
		switch {
		case name.Value == topicsName:
			err = o.readTopics(value)
		case f.Lookup(name.Value) == nil || name.Value == "config" || name.Value == "version":
			err = errors.New("no such name")
		case given[name.Value]:
		default:
			err = setFlag(f, name.Value, value)
		}
		if err != nil {
			return at(err)
		}
	}
	return nil
}

// setFlag gives a flag a value, or a list of values.
func setFlag(f *flag.FlagSet, name string, value *yaml.Node) error {
	var values []string
	switch value.Kind {
	case yaml.ScalarNode:
		values = []string{value.Value}
	case yaml.SequenceNode:
		for _, v := range value.Content {
			if v.Kind != yaml.ScalarNode || strings.Contains(v.Value, ",") {
				return errors.New("want a list of texts without commas")
			}
			values = append(values, v.Value)
		}
	default:
		return errors.New("want a value or a list")
	}
	return f.Set(name, strings.Join(values, ","))
}

// readTopics reads the options by the first word of a topic.
func (o *options) readTopics(value *yaml.Node) error {
	var all map[string]topicOptions
	if err := value.Load(&all, yaml.WithKnownFields()); err != nil {
		return err
	}
	o.config.Topics = make(map[string]gateway.TopicConfig)
	for word, t := range all {
		c := gateway.TopicConfig{NoHistory: t.History != nil && !*t.History, Presence: t.Presence, Read: t.Read, Write: t.Write}
		o.config.Topics[word] = c
	}
	return nil
}
