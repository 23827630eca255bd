// Command wineprng writes a bcryptprimitives.dll for Wine before version 10, which lacks this library. No Go
// program starts without it. The library has no code: its one function, ProcessPrng, is a forwarder to the
// random number generator of advapi32.
//
//	wineprng FILE
package main

import (
	"debug/pe"
	"encoding/binary"
	"fmt"
	"os"
)

const (
	dll      = "bcryptprimitives.dll"
	function = "ProcessPrng"
	target   = "advapi32.SystemFunction036"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: wineprng FILE")
		os.Exit(2)
	}
	image, err := build()
	if err == nil {
		err = os.WriteFile(os.Args[1], image, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wineprng:", err)
		os.Exit(1)
	}
}

// The file is its headers and one section, both a file alignment long; in memory each has a page.
const (
	fileAlign = 0x200
	page      = 0x1000
	stub      = 0x40 // the DOS header
)

// exportDirectory is IMAGE_EXPORT_DIRECTORY, for one function, with the tables behind it.
type exportDirectory struct {
	Characteristics, TimeDateStamp         uint32
	MajorVersion, MinorVersion             uint16
	Name, Base, Functions, Names           uint32
	FunctionTable, NameTable, OrdinalTable uint32
	FunctionAddress, NameAddress           uint32
	Ordinal                                uint16
	DLLName, FunctionName, ForwarderName   [32]byte
}

// Addresses of the parts of the section, relative to the image.
const (
	atFunctionTable = page + 40
	atNameTable     = atFunctionTable + 4
	atOrdinalTable  = atNameTable + 4
	atDLLName       = atOrdinalTable + 2
	atFunctionName  = atDLLName + 32
	atForwarderName = atFunctionName + 32
)

// build returns the image. A function address that points into the export directory itself marks a forwarder.
func build() ([]byte, error) {
	exports := exportDirectory{
		Name: atDLLName, Base: 1, Functions: 1, Names: 1,
		FunctionTable: atFunctionTable, NameTable: atNameTable, OrdinalTable: atOrdinalTable,
		FunctionAddress: atForwarderName, NameAddress: atFunctionName,
	}
	copy(exports.DLLName[:], dll)
	copy(exports.FunctionName[:], function)
	copy(exports.ForwarderName[:], target)
	size := uint32(binary.Size(exports))

	optional := pe.OptionalHeader64{
		Magic: 0x20b, ImageBase: 0x180000000, SectionAlignment: page, FileAlignment: fileAlign,
		MajorOperatingSystemVersion: 6, MajorSubsystemVersion: 6, Subsystem: pe.IMAGE_SUBSYSTEM_WINDOWS_CUI,
		SizeOfInitializedData: fileAlign, SizeOfHeaders: fileAlign, SizeOfImage: 2 * page,
		DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE | pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT,
		SizeOfStackReserve: 1 << 20, SizeOfStackCommit: page, SizeOfHeapReserve: 1 << 20, SizeOfHeapCommit: page,
		NumberOfRvaAndSizes: 16,
	}
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{VirtualAddress: page, Size: size}
	header := pe.FileHeader{
		Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1,
		SizeOfOptionalHeader: uint16(binary.Size(optional)),
		Characteristics:      pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE | pe.IMAGE_FILE_DLL,
	}
	section := pe.SectionHeader32{
		Name: [8]uint8{'.', 'e', 'd', 'a', 't', 'a'}, VirtualSize: size, VirtualAddress: page,
		SizeOfRawData: fileAlign, PointerToRawData: fileAlign,
		Characteristics: pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ,
	}

	image := make([]byte, stub, 2*fileAlign)
	copy(image, "MZ")
	binary.LittleEndian.PutUint32(image[stub-4:], stub)
	image = append(image, "PE\x00\x00"...)
	for _, part := range []any{header, optional, section} {
		var err error
		if image, err = binary.Append(image, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	image = append(image, make([]byte, fileAlign-len(image))...)
	image, err := binary.Append(image, binary.LittleEndian, exports)
	if err != nil {
		return nil, err
	}
	return append(image, make([]byte, 2*fileAlign-len(image))...), nil
}
