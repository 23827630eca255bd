// The headers of C++ for files, which take _WIN32 for Windows, with path names of wchar_t, unless they come first.
#include <filesystem>
#include <fstream>

#include <winsock2.h>

int main()
{
	std::filesystem::path folder = std::filesystem::current_path();
	std::ifstream none(folder / "no such file");
	return std::filesystem::exists(folder) && !none ? 0 : 1;
}
