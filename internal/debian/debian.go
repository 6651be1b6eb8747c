// Package debian takes single programs from a newer Debian than the machine's, without touching the machine's packages:
// apt runs with folders of its own on the mirror the machine is set up for, and fetches the package and the shared
// libraries it names, which start under their own dynamic loader. What was fetched stays in the user's cache folder.
package debian

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// suites are asked in this order: the newest first.
var suites = []string{"unstable", "testing", "stable"}

// Program is a program of a package that is named like it.
type Program struct {
	Name    string // of the package and of the file
	Path    string // in the package, without the leading slash
	Version string // the argument that has it print its version and end
	Oldest  [2]int // the first version, major and minor, that will do
}

// Find returns the command line of a program, and where it is from: the machine's own ("installed") if it is recent
// enough, else one from a newer Debian ("Debian" and the suite), a copy in dir, which any account may run if it may enter
// dir. That one is fetched unless an earlier call did, blocking on the mirror until ctx ends.
func Find(ctx context.Context, dir string, p Program) (argv []string, source string, err error) {
	for _, file := range []string{p.Name, "/" + p.Path} {
		path, err := exec.LookPath(file)
		if err != nil {
			continue
		}
		if out, err := exec.Command(path, p.Version).CombinedOutput(); err == nil && p.recent(string(out)) {
			return []string{path}, "installed", nil
		}
	}
	argv, suite, err := p.get(ctx, dir)
	if err != nil {
		return nil, "", fmt.Errorf("get Debian's newest %s: %w", p.Name, err)
	}
	return argv, "Debian " + suite, nil
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)`)

// recent reports whether what a program says of its version is that of one that will do.
func (p Program) recent(says string) bool {
	m := versionNumber.FindStringSubmatch(says)
	if m == nil {
		return false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return slices.Compare([]int{major, minor}, p.Oldest[:]) >= 0
}

func (p Program) get(ctx context.Context, dir string) (argv []string, suite string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, "", err
	}
	cache = filepath.Join(cache, "fencepost-bench", p.Name)
	if p.runs(cache) != nil {
		if err := p.fetch(ctx, cache); err != nil {
			return nil, "", err
		}
	}
	// The server account cannot read the home folder of root, hence the copy.
	to := filepath.Join(dir, p.Name+"-debian")
	if err := os.CopyFS(to, os.DirFS(cache)); err != nil {
		return nil, "", err
	}
	b, _ := os.ReadFile(filepath.Join(cache, "suite"))
	return p.loaded(to), strings.TrimSpace(string(b)), p.runs(to)
}

func (p Program) fetch(ctx context.Context, to string) error {
	mirror, keyring, err := archive(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, suite := range suites {
		if err = p.fetchFrom(ctx, to, mirror, keyring, suite); err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", suite, err))
	}
	return errors.Join(errs...)
}

// loaded is the command line that runs the program of a folder made by fetchFrom.
func (p Program) loaded(dir string) []string {
	return []string{filepath.Join(dir, "ld.so"), "--library-path", dir, filepath.Join(dir, p.Name)}
}

// runs starts the program of such a folder to see whether it can.
func (p Program) runs(dir string) error {
	argv := append(p.loaded(dir), p.Version)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// archive is the archive that the machine's own apt uses for its release, and the file with Debian's keys.
func archive(ctx context.Context) (mirror, keyring string, err error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)",
		"Created-By: Packages").Output()
	if err != nil {
		return "", "", fmt.Errorf("ask apt for its sources: %w", err)
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", "", err
	}
	mirror = mirrorFrom(string(out), osReleaseField(string(release), "VERSION_CODENAME"))
	if mirror == "" || osReleaseField(string(release), "ID") != "debian" {
		return "", "", errors.New("this is no Debian machine with its own release among apt's sources")
	}
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	_, err = os.Stat(keyring)
	return mirror, keyring, err
}

// mirrorFrom picks the archive that serves the component main of a release out of lines "URI CODENAME COMPONENT".
func mirrorFrom(targets, codename string) string {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) >= 3 && f[1] == codename && f[2] == "main" && codename != "" {
			return f[0]
		}
	}
	return ""
}

func osReleaseField(text, key string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// fetchFrom fills the folder to with the program, ld.so and the shared libraries, all at once or not at all.
func (p Program) fetchFrom(ctx context.Context, to, mirror, keyring, suite string) error {
	work, err := os.MkdirTemp("", "fencepost-bench-apt-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	conf, err := aptFolders(work, fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, suite))
	if err != nil {
		return err
	}
	debs := filepath.Join(work, "debs")
	run := func(argv ...string) (string, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = debs, append(os.Environ(), "APT_CONFIG="+conf, "LC_ALL=C")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(argv[:min(2, len(argv))], " "), err, stderr.String())
		}
		return string(out), nil
	}
	if _, err := run("apt-get", "update", "-q"); err != nil {
		return err
	}
	plan, err := run("apt-get", "install", "--simulate", p.Name)
	if err != nil {
		return err
	}
	if _, err := run(append([]string{"apt-get", "download"}, libraryPackages(plan, p.Name)...)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	for _, f := range files {
		if _, err := run("dpkg-deb", "--extract", f, root); err != nil {
			return err
		}
	}
	flat := filepath.Join(work, "flat")
	if err := p.flatten(root, flat); err != nil {
		return err
	}
	if err := p.runs(flat); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(flat, "suite"), []byte(suite), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(flat))
}

// aptFolders lays out a state of its own for apt, as if nothing were installed, and returns its configuration file.
func aptFolders(work, source string) (string, error) {
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "none", "debs", "root"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o755); err != nil {
			return "", err
		}
	}
	conf := strings.ReplaceAll(`Dir::State "W/state";
Dir::State::status "W/status";
Dir::Cache "W/cache";
Dir::Etc::sourcelist "W/sources.list";
Dir::Etc::sourceparts "W/none";
Dir::Etc::preferences "W/no-preferences";
Dir::Etc::preferencesparts "W/none";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`, "W", work)
	file := filepath.Join(work, "apt.conf")
	return file, errors.Join(
		os.WriteFile(file, []byte(conf), 0o644),
		os.WriteFile(filepath.Join(work, "status"), nil, 0o644),
		os.WriteFile(filepath.Join(work, "sources.list"), []byte(source), 0o644),
	)
}

// libraryPackages are, of the packages apt would install for a program, itself and the shared libraries.
func libraryPackages(plan, program string) []string {
	var names []string
	for line := range strings.Lines(plan) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "Inst" {
			continue
		}
		name := f[1]
		lib := strings.HasPrefix(name, "lib") && !strings.Contains(name, "perl") || strings.HasPrefix(name, "zlib")
		if lib || name == program {
			names = append(names, name)
		}
	}
	return names
}

// flatten copies the program, its loader and the libraries it loads from an unpacked tree into one folder.
func (p Program) flatten(root, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	loaders, _ := filepath.Glob(filepath.Join(root, "usr/lib/*/ld-linux*.so.*"))
	if len(loaders) != 1 {
		return fmt.Errorf("found %d dynamic loaders in the packages", len(loaders))
	}
	libs := filepath.Dir(loaders[0])
	program := filepath.Join(root, filepath.FromSlash(path.Clean(p.Path)))
	out, err := exec.Command(loaders[0], "--library-path", libs, "--list", program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("list the libraries of %s: %w: %s", p.Name, err, out)
	}
	copies := map[string]string{p.Name: program, "ld.so": loaders[0]}
	s := bufio.NewScanner(strings.NewReader(string(out)))
	for s.Scan() { // "	libssl.so.3 => /path/libssl.so.3 (0x…)"
		f := strings.Fields(s.Text())
		loader := len(f) > 0 && strings.Contains(f[0], "/") // listed by its path; ours goes by another name
		if !loader && slices.Index(f, "=>") == 1 && len(f) > 2 && strings.HasPrefix(f[2], root) {
			copies[f[0]] = f[2]
		}
	}
	for name, from := range copies {
		if err := copyProgram(filepath.Join(to, name), from); err != nil {
			return err
		}
	}
	return nil
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
