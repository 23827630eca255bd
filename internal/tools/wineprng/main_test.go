package main

import (
	"bytes"
	"debug/pe"
	"testing"
)

func TestImage(t *testing.T) {
	image, err := build()
	if err != nil {
		t.Fatal(err)
	}
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	directory := f.OptionalHeader.(*pe.OptionalHeader64).DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT]
	section := f.Section(".edata")
	if section == nil || directory.VirtualAddress != section.VirtualAddress || directory.Size > section.Size {
		t.Fatalf("section %+v, directory %+v", section, directory)
	}
	data, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[int]string{atDLLName: dll, atFunctionName: function, atForwarderName: target} {
		if got, _, _ := bytes.Cut(data[at-page:], []byte{0}); string(got) != want {
			t.Errorf("at %#x: %q; want %q", at, got, want)
		}
	}
}
